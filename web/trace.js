// The page of traces: reads the data, builds header and sections. Several traces lie over one another.
"use strict";

Pages.add("trace", (data) => {
  const { count, duration } = Format;
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
        facts: [...(traces.length === 1 && traces[0].host ? [["Machine", traces[0].host]] : []), ...(traces.length === 1 && traces[0].started_at ? [["Recorded", Format.time(traces[0].started_at)]] : []),
          ["Operations", count(traces.reduce((sum, trace) => sum + Format.num(trace.operations), 0))], ...(span > 0 ? [["Duration", duration(span)]] : [])],
      }),
      Shell.summary(data.words),
    ],
    footer: Shell.footer({
      method: [
        "A whole-file operation is everything read, or written, between one open and close of a file; if a trace has no opens, adjacent requests of a client are one operation. " +
          "A request is a single call. One block serves an operation no longer than the block (a request: one that lies within it).",
        "After Tanenbaum, Herder and Bos, “File Size Distribution on UNIX Systems: Then and Now” (2006), whose Fig. 4 is drawn in grey. KiB, MiB and GiB are powers of 1,024.",
      ],
      data,
    }),
  });
});
