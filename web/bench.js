// The page of benches: reads the data, builds header and sections. Runs of the same bench lie over one another.
"use strict";

(() => {
  const { el, count } = Format;
  const data = Format.parse(document.getElementById("data").textContent);
  const runs = data.runs ?? [];

  function header() {
    const incomplete = runs.filter((run) => run.document.complete === false);
    return Shell.head({
      kicker: "Benchmark",
      title: data.title || "Benchmark",
      facts: [["Runs", count(runs.length)], ["Measured", Format.time(runs[0].document.started_at)],
        ["Duration", Format.duration(runs.reduce((sum, run) => sum + Format.num(run.document.elapsed_seconds), 0))]],
      badges: incomplete.length ? [["warn", "Interrupted: partial"]] : [],
    });
  }

  const warning = () => runs.length > 1 && el("ul", { class: "warnings", role: "note" },
    el("li", {}, "Several runs are shown together. Figures within one run are comparable; between runs, machine and load may differ."));

  function footer() {
    return Shell.footer({
      method: [
        "Compared figures were measured in one run, with targets taking turns. Cold caches: written back and dropped, and the file system remounted if it was created for the run. " +
          "Medians and means cover all rounds; spread is the standard deviation over the mean. Raw samples are in the JSON.",
        "After Foddex (creation), Vorontsov (many files or one), Atkinson (fill level), Welch and Noer (metadata) and Tanenbaum, Herder and Bos (cache and block size). KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    });
  }

  if (!runs.length) {
    Shell.showNothing(data.title || "Benchmark");
    return;
  }
  Shell.show({
    subject: "benchmark",
    sections: [BenchFiles.curves(data), BenchFiles.totals(data), BenchFiles.pack(data), BenchLevels.fill(data), BenchLevels.load(data), BenchLevels.metadata(data), BenchLevels.cache(data), BenchLevels.measuredOn(data)].filter(Boolean),
    nodes: [header(), warning(), Shell.summary(data.words)],
    footer: footer(),
  });
})();
