// The page of traces: reads the data, builds header and sections. Several traces lie over one another.
"use strict";

(() => {
  const { count, duration } = Format;
  const data = Format.parse(document.getElementById("data").textContent);
  const traces = data.traces ?? [];

  if (!traces.length) {
    Shell.showNothing(data.title || "Trace");
    return;
  }
  const span = traces.reduce((sum, trace) => sum + Format.num(trace.span_seconds), 0);
  Shell.show({
    subject: "trace",
    sections: [Traces.sizes(data), Traces.oneBlock(data), Traces.files(data), Traces.kinds(data), Traces.rates(data), Traces.recorded(data)].filter(Boolean),
    nodes: [
      Shell.head({
        kicker: "Trace",
        title: data.title || "Trace",
        facts: [["Operations", count(traces.reduce((sum, trace) => sum + Format.num(trace.operations), 0))], ...(span > 0 ? [["Took", duration(span)]] : [])],
      }),
      Shell.summary(data.words),
    ],
    footer: Shell.footer({
      method: [
        "A whole-file operation is all that was read, or written, through one opening of a file; where a trace knows no openings, neighbouring requests of a client are one. " +
          "A request is a single call. One block serves an operation that is no longer than it (a request: that lies within it).",
        "After Tanenbaum, Herder and Bos, “File Size Distribution on UNIX Systems: Then and Now” (2006), whose Fig. 4 is drawn in grey. KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    }),
  });
})();
