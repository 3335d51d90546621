// The page of any other document: its amounts, its facts and its tables, as the program prepared them.
"use strict";

Pages.add("fields", (data) => {
  const { el, count, table } = Format;
  const { kind, facts, tables } = data.document;
  const MOST_KEYS = 6;

  if (!facts.length && !tables.length) {
    Shell.showNothing(data.title || "Result");
    return;
  }
  const keys = facts.filter((fact) => fact.is_amount).slice(0, MOST_KEYS);
  const list = facts.length > 0 && {
    id: "facts", title: "Facts", short: "Facts", lead: [],
    parts: [el("div", { class: "block" }, table({
      caption: "Facts", columns: [{ title: "Name", text: true }, { title: "Value", text: true }],
      rows: facts.map((fact) => [fact.name, { text: fact.text, name: true }]),
    }))],
  };
  const sections = tables.filter((one) => one.rows.length).map((one, number) => ({
    id: `table-${number}`, title: one.title, short: one.title,
    lead: [one.row_count > one.rows.length && `The first ${count(one.rows.length)} of ${count(one.row_count)} rows; granulo show --csv=${one.name} prints them all.`],
    parts: [el("div", { class: "block" }, table({
      caption: one.title, sortable: true, columns: one.columns,
      rows: one.rows.map((row) => row.map((cell, at) => (one.columns[at].text
        ? { text: cell.text, name: true }
        : { text: cell.text, value: cell.value ?? -Number.MAX_VALUE }))),
    }))],
  }));
  Shell.show({
    subject: "result",
    sections: [list, ...sections].filter(Boolean),
    nodes: [
      Shell.head({ kicker: kind, title: data.document.of ?? (data.name || kind) }),
      Shell.keys(keys.map((fact) => [fact.name.charAt(0).toUpperCase() + fact.name.slice(1), fact.text])),
    ],
    footer: Shell.footer({ method: ["Values are those of the JSON document. KiB, MiB and GiB are powers of 1,024."], data }),
  });
});
