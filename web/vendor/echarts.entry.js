// The parts of Apache ECharts that the report page uses, and no others.
export { init } from "echarts/core";
import { use } from "echarts/core";
import { BarChart, CustomChart, LineChart, TreemapChart } from "echarts/charts";
import { GridComponent, MarkLineComponent, TooltipComponent } from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([BarChart, CustomChart, LineChart, TreemapChart, GridComponent, MarkLineComponent, TooltipComponent, SVGRenderer]);
