/* Draws a report from the document in the page. Whatever the document says is shown as text: elements are made by `h`,
   which takes texts and elements, and nothing here reads HTML. */
"use strict";
(() => {
const doc = JSON.parse(document.getElementById("document").textContent);
const main = document.getElementById("report");

// ---- elements and texts

function h(tag, attributes, ...children) {
  const svg = tag === "svg" || tag === "rect";
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.assign(made.style, value);
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : shown(String(value)));
  }
  for (const child of children.flat(9)) {
    if (child !== null && child !== undefined && child !== false) made.append(child instanceof Node ? child : shown(String(child)));
  }
  return made;
}
/** Characters that would change how the text around them is read are written as escapes. */
function shown(text) {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => (c === "\n" ? "\\n" : "\\u{" + c.codePointAt(0).toString(16) + "}"));
}
const DASH = "–";
/** A value as people read it, with the value itself beside it. */
const data = (value, format) => (value === null || value === undefined ? DASH : h("data", { value, title: format === count ? null : value }, format(value)));
const few = (number) => number.toLocaleString("en-US", { maximumSignificantDigits: 3 });
const count = (number) => number.toLocaleString("en-US", { maximumFractionDigits: 1 });
function span(ms) {
  if (ms === null || ms === undefined) return DASH;
  for (const [unit, size] of [["d", 864e5], ["h", 36e5], ["min", 6e4], ["s", 1e3]]) {
    if (ms >= 2 * size || (unit === "s" && ms >= size)) return (ms / size).toFixed(1).replace(/\.0$/, "") + " " + unit;
  }
  return ms.toFixed(0) + " ms";
}
function size(bytes) {
  let left = bytes;
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (left < 1024) return left.toFixed(unit === "B" ? 0 : 1) + " " + unit;
    left /= 1024;
  }
  return left.toFixed(1) + " TB";
}
/** RFC 3339 in UTC, to the second; in the zone of whoever looks as a hint. */
function time(text) {
  if (!text) return DASH;
  return h("time", { datetime: text, title: new Date(text).toLocaleString() + " here" }, text.slice(0, 19).replace("T", " ") + " UTC");
}
const ago = (text, now) => (text ? [time(text), ` (${span(Date.parse(now) - Date.parse(text))} ago)`] : DASH);
const plural = (number, noun) => count(number) + " " + noun + (number === 1 ? "" : "s");
const badge = (kind, text) => h("span", { class: "badge " + kind }, text);
const cell = (label, fact, content, kind = "num") => h("span", { class: kind, "data-fact": fact }, h("span", { class: "label" }, label), content);
const facts = (pairs) => h("dl", { class: "facts" }, pairs.filter((each) => each[1] !== null).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
const section = (id, title, number, ...content) => h("section", { id, "aria-labelledby": id + "-title" }, h("h2", { id: id + "-title" }, title, number === null ? null : h("span", { class: "count" }, count(number))), content);
const empty = (text) => h("div", { class: "card empty" }, text);
const block = (title, ...content) => h("div", {}, h("h3", {}, title), content);
/** Made when it is opened for the first time. */
function folded(attributes, summary, inside) {
  const made = h("details", { ...attributes, ontoggle: () => { if (made.open && made.children.length === 1) made.append(inside()); } }, h("summary", {}, summary));
  return made;
}
function grid(caption, titles, rows) {
  const isNumber = (index) => titles[index].startsWith("#");
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, h("table", {},
    h("thead", {}, h("tr", {}, titles.map((each, index) => h("th", { scope: "col", class: isNumber(index) && "num" }, each.replace("#", ""))))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each, index) => h("td", { class: isNumber(index) && "num" }, each)))))));
}

// ---- what there is, the worst first

const tables = doc.status.tables, findings = doc.findings;
const RANK = { error: 0, warning: 1, note: 2 }, KIND = { error: "bad", warning: "warn", note: "" };
const byTable = new Map();
for (const each of findings) byTable.set(each.table, [...(byTable.get(each.table) || []), each]);
const found = (table) => byTable.get(table.name) || [];
const worst = (table) => Math.min(3, ...found(table).map((each) => RANK[each.severity]));
const ordered = [...tables].sort((a, b) => b.is_behind - a.is_behind || Math.min(2, worst(a)) - Math.min(2, worst(b)));
const index = new Map(ordered.map((each, at) => [each.name, at]));
const toAct = findings.filter((each) => each.severity !== "note");

function tableState(table) {
  if (table.error) return badge("bad", "CANNOT BE READ");
  if (table.is_behind) return badge("bad", "BEHIND");
  return table.target_ms === null ? badge("", "no target") : badge("ok", "in time");
}
/** Pipelines of the files that were given, and those that only their commits tell of. */
const given = new Set(doc.status.pipelines.map((each) => each.name));
const told = new Map();
for (const table of tables) {
  for (const [name, batches] of Object.entries((table.detail || {}).batches || {})) {
    const known = told.get(name);
    if (!given.has(name) && (!known || (batches.last || "") > (known.batches.last || ""))) told.set(name, { name, batches, table: table.name, state: null, apart: {}, tables: [] });
  }
}
const isDown = (each) => ["failed", "gone"].includes(each.state);
const pipelines = [...doc.status.pipelines, ...told.values()].sort((a, b) => (b.is_behind || false) - (a.is_behind || false) || isDown(b) - isDown(a) || (b.lag_ms || 0) - (a.lag_ms || 0));

function pipelineState(each) {
  if (each.error) return badge("bad", "CANNOT BE READ");
  if (each.state === null) return badge("", "by its commits");
  if (isDown(each)) return badge("bad", each.state.toUpperCase());
  if (each.is_behind) return badge("bad", "BEHIND: " + each.state);
  return badge(["running", "idle"].includes(each.state) ? "ok" : each.state === "restarting" ? "warn" : "", each.state);
}
const sum = (values) => Object.values(values || {}).reduce((a, b) => a + b, 0);

/** A pipeline that waits for records and has read all: its tables are as fresh as they can be. */
const quiet = (table) => doc.status.pipelines.find((each) => each.state === "idle" && each.tables.some((one) => one.name === table.name && !one.is_behind));
const quietText = (table) => (table.is_behind && quiet(table) ? `; its pipeline ${quiet(table).name} waits for records and has read all` : "");
function tableLink(name) {
  const at = index.get(name);
  return at === undefined ? h("b", {}, name) : h("a", { href: "#table-" + at, onclick: (event) => { event.preventDefault(); openTable(at); } }, name);
}

// ---- the head of the page

function header() {
  const behind = tables.filter((each) => each.is_behind).length, sick = pipelines.filter((each) => each.is_behind).length;
  const errors = findings.filter((each) => each.severity === "error").length;
  const watched = pipelines.filter((each) => each.state !== null);
  const dead = pipelines.reduce((all, each) => all + sum(each.batches.dead_letters), 0);
  const tile = (kind, name, number, says, id) => h("a", { class: "card tile " + kind, href: "#" + id }, h("small", {}, name), h("b", {}, count(number)), h("span", { class: "says" }, says));
  return [
    h("header", {}, h("div", { class: "eyebrow" }, "Freshet report"), h("h1", {}, doc.place), h("p", { class: "muted" }, "As of ", time(doc.made), ", read from files alone.")),
    h("div", { class: "tiles" },
      tile(behind ? "bad" : tables.length ? "ok" : "", "Tables", tables.length, !tables.length ? "none yet" : behind ? `${count(behind)} behind or not to be read` : "none is behind", "tables"),
      tile(sick ? "bad" : watched.length ? "ok" : "", "Pipelines", pipelines.length, sick ? `${count(sick)} behind or down` : watched.length ? "none is behind" + (watched.length < pipelines.length ? `; ${count(pipelines.length - watched.length)} known by commits alone` : "") : pipelines.length ? "by their commits; --pipeline says whether they run" : "none is known", "pipelines"),
      tile(errors ? "bad" : toAct.length ? "warn" : "ok", "Findings to act on", toAct.length, toAct.length ? `${plural(errors, "error")}, ${plural(toAct.length - errors, "warning")}` : "doctor finds nothing", "findings"),
      tile(dead ? "warn" : "ok", "Dead letters, last hour", dead, dead ? "records that did not become rows" : "none", "dead")),
  ];
}
const SHOWN = 12;
function attention() {
  const lines = [];
  for (const each of pipelines) {
    if (each.error) lines.push([badge("bad", "pipeline"), " ", h("b", {}, each.name), " cannot be read: ", each.error]);
    else if (each.is_behind) lines.push([badge("bad", "pipeline"), " ", h("b", {}, each.name), ` is ${each.state}`, each.last_error ? ": " + each.last_error : ""]);
    for (const [name, cause] of Object.entries(each.apart)) lines.push([badge("bad", "set apart"), " ", tableLink(name), ": ", cause]);
  }
  for (const each of ordered) {
    if (each.error) lines.push([badge("bad", "table"), " ", tableLink(each.name), " cannot be read: ", each.error]);
    else if (each.is_behind) lines.push([badge("bad", "behind"), " ", tableLink(each.name), each.freshness_ms === null ? " has no rows yet" : ` has rows that are ${span(each.freshness_ms)} old`, `; its target is ${span(each.target_ms)}`, quietText(each)]);
  }
  for (const each of toAct) {
    if (!["cannot be read", "run gone", "run failed"].includes(each.name)) lines.push([badge(KIND[each.severity], each.severity), " ", tableLink(each.table), `: ${each.name} (${count(each.evidence)} ${each.unit})`]);
  }
  const content = lines.length ? h("ul", { class: "card attention" }, lines.slice(0, SHOWN).map((each) => h("li", {}, each)), lines.length > SHOWN && h("li", { class: "muted" }, `and ${count(lines.length - SHOWN)} more, below`)) : empty("Nothing is behind, and doctor finds nothing to act on.");
  return section("attention", "What needs attention", lines.length, content);
}

// ---- pipelines

function pipelineRow(each) {
  const batches = each.batches, late = sum(batches.dead_letters);
  return folded({ "data-pipeline": each.name }, [
    h("span", { "data-fact": "state" }, pipelineState(each)), h("span", { class: "name" }, each.name),
    cell("behind", "lag_records", each.lag_records === null || each.lag_records === undefined ? DASH : [data(each.lag_records, count), " rec, ", h("span", { "data-fact": "lag_ms" }, data(each.lag_ms, span))]),
    cell("records/s", "records_per_s", data(batches.records_per_s, count)),
    cell("event → commit", "event_to_commit", [h("span", { "data-fact": "event_to_commit_ms_p50" }, data(batches.event_to_commit_ms_p50, span)), " / ", h("span", { "data-fact": "event_to_commit_ms_p99" }, data(batches.event_to_commit_ms_p99, span))]),
    cell("batch", "batch", data(each.batch, count)),
    cell("dead letters", "dead_letters", late ? h("span", { class: "warn-text" }, data(late, count)) : data(late, count)),
  ], () => h("div", { class: "inside" }, pipelineInside(each)));
}
function pipelineInside(each) {
  const run = each.run, phases = Object.entries(each.batches.phases_ms || {});
  const most = Math.max(1, ...phases.map((phase) => phase[1]));
  return [
    each.error && h("p", { class: "bad-text" }, each.error),
    each.last_error && h("p", {}, h("span", { class: "bad-text" }, "Last error: "), each.last_error),
    Object.entries(each.apart).map(([name, cause]) => h("p", {}, badge("bad", "set apart"), " ", tableLink(name), ": ", cause)),
    facts([
      ["Last word of its run", run ? [ago(run.time, each.observed), ` on ${run.host}, process ${run.process_id}`] : each.state === null ? "not known: give its file with --pipeline" : "none"],
      ["Running since", run ? time(run.started) : null],
      ["Newest batch committed", each.batches.last ? time(each.batches.last) : DASH],
      ["Batches of the last 15 minutes", data(each.batches.batches, count)], ["Records of these", data(each.batches.records, count)],
      ["Rules broken in the last hour", sum(each.batches.broken_rules) ? Object.entries(each.batches.broken_rules).map(([rule, number]) => h("div", {}, `${count(number)} × ${rule}`)) : null],
      ["Dead letters of the last hour", Object.entries(each.batches.dead_letters || {}).map(([cause, number]) => h("div", {}, `${count(number)} × ${cause}`))],
      ["Tables", each.tables.length || each.table ? [...each.tables.map((table) => table.name), ...(each.table ? [each.table] : [])].slice(0, 50).map((name) => h("div", {}, tableLink(name))) : DASH],
    ]),
    phases.length > 0 && block("Where a batch spends its time", phases.map(([name, ms]) => h("div", { class: "share" }, h("span", {}, name), h("span", {}, h("i", { style: { width: (100 * ms) / most + "%" } })), data(ms, span)))),
  ];
}
function pipelineSection() {
  if (!pipelines.length) return section("pipelines", "Pipelines", 0, empty("No pipeline has committed to these tables in the last hour; give its file with --pipeline to see its state."));
  const head = h("div", { class: "head", "aria-hidden": true }, h("span", {}, "state"), h("span", {}, "pipeline"), ["behind its source", "records/s", "event → commit p50 / p99", "batch", "dead letters, 1 h"].map((each) => h("span", { class: "num" }, each)));
  return section("pipelines", "Pipelines", pipelines.length, h("div", { class: "card rows pipelines" }, head, pipelines.map(pipelineRow)));
}

// ---- tables

const ROWS_SHOWN = 500;
let list, tally, filter;
function tableRow(table) {
  const levels = table.detail && table.detail.levels, few = found(table).filter((each) => each.severity !== "note");
  const runs = !levels ? DASH : [data(levels.runs_max, count), ` of ${levels.runs_stop === null ? levels.runs_trigger : levels.runs_stop}`];
  const late = levels && levels.runs_stop !== null && levels.runs_max >= levels.runs_stop;
  return folded({ id: "table-" + index.get(table.name), "data-table": table.name }, [
    h("span", { "data-fact": "is_behind" }, tableState(table)), h("span", { class: "name" }, table.name),
    cell("newest rows", "freshness_ms", [h("span", { class: table.is_behind && "bad-text" }, data(table.freshness_ms, span)), table.target_ms !== null && h("small", {}, " of ", h("span", { "data-fact": "target_ms" }, data(table.target_ms, span)))]),
    cell("rows", "rows", data(table.rows, count)), cell("size", "live_bytes", data(table.live_bytes, size)),
    cell("runs", "runs_max", late ? h("span", { class: "bad-text" }, runs) : runs),
    cell("findings", "findings", few.length ? badge(KIND[few[0].severity], plural(few.length, few[0].severity === "error" ? "finding" : "warning")) : table.detail ? h("span", { class: "muted" }, "none") : DASH),
  ], () => h("div", { class: "inside" }, tableInside(table)));
}
function showTables() {
  const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const state = (each) => (each.error ? "unreadable" : each.is_behind ? "behind" : "") + " " + found(each).map((one) => one.severity + " " + one.name).join(" ");
  const kept = ordered.filter((each) => { const text = (each.name + " " + state(each)).toLowerCase(); return wanted.every((word) => text.includes(word)); });
  list.replaceChildren(...kept.slice(0, ROWS_SHOWN).map(tableRow));
  if (!kept.length) list.append(h("div", { class: "empty" }, "No table is called so."));
  tally.textContent = kept.length === ordered.length ? "" : `${count(kept.length)} of ${count(ordered.length)}`;
  if (kept.length > ROWS_SHOWN) tally.textContent = `the worst ${count(ROWS_SHOWN)} of ${count(kept.length)}: narrow the filter`;
}
function openTable(at) {
  if (!document.getElementById("table-" + at)) { filter.value = ordered[at].name; showTables(); }
  const row = document.getElementById("table-" + at);
  if (!row) return;
  row.open = true;
  row.scrollIntoView();
  row.querySelector("summary").focus({ preventScroll: true });
}
function tableSection() {
  list = h("div", {});
  tally = h("span", { class: "muted", role: "status" });
  filter = h("input", { type: "search", placeholder: "Filter: name, behind, warning … ( / )", "aria-label": "Filter tables", oninput: showTables });
  if (!tables.length) return section("tables", "Tables", 0, empty("There are no tables yet."));
  const head = h("div", { class: "head", "aria-hidden": true }, h("span", {}, "state"), h("span", {}, "table"), ["newest rows", "rows", "size", "sorted runs", "to act on"].map((each) => h("span", { class: "num" }, each)));
  showTables();
  return section("tables", "Tables", tables.length, tables.length > 5 && h("div", { class: "tools" }, filter, tally), h("div", { class: "card rows tables" }, head, list));
}

// ---- one table

function tableInside(table) {
  if (table.error) return [h("p", { class: "bad-text" }, table.error), found(table).map(finding)];
  const detail = table.detail, more = doc.details[table.name];
  if (!detail || !more) return [facts(newest(table)), h("p", { class: "muted" }, "Of the tables that are least behind there is no more in a report of all; name this one for a report of its own.")];
  const { levels, history, hour } = detail;
  const mine = found(table);
  return [
    facts([...newest(table),
      ["Snapshots", [data(history.snapshots, count), history.earliest ? [" since ", time(history.earliest)] : ""]],
      ["Kept for snapshots alone", data(history.kept_bytes, size)],
      ["To compact", levels.backlog_buckets ? [data(levels.backlog_bytes, size), ` in ${plural(levels.backlog_buckets, "bucket")}`, levels.backlog_minutes === null ? "" : `, ${span(levels.backlog_minutes * 6e4)} at the last hour's rate`] : "nothing"],
      ["Changelog", detail.changelog_behind === null ? null : [data(detail.changelog_behind, count), ` commits behind, ${plural(levels.waiting_rows, "row")} waiting`]],
      [hour.span_ms >= 36e5 ? "Last hour" : "Last " + span(hour.span_ms), [`${plural(hour.commits, "commit")}, ${plural(hour.rows_written, "row")}, ${plural(hour.conflicts, "conflict")}`]],
      ["Commit p50 / p99", [data(hour.commit_ms_p50, span), " / ", data(hour.commit_ms_p99, span)]],
      ["Log", detail.log ? [`topic ${detail.log.topic}, batch ${detail.log.batch}: `, Object.entries(detail.log.offsets).map(([part, offset]) => `${part}: ${count(offset)}`).join(", ")] : null],
    ]),
    mine.length > 0 && tables.length > 1 && block("What doctor finds", h("div", { class: "card" }, mine.map(finding))),
    curves(table, more), picture(table, more), timeline(table, more), compactions(more), commits(more), schemas(more),
  ];
}
function newest(table) {
  return [
    ["Newest commit", table.newest ? [`${table.newest.kind} ${table.newest.snapshot_id} by ${table.newest.commit_user}`, h("br"), ago(table.newest.time, table.observed)] : "none yet"],
    ["Rows in files", [data(table.rows, count), table.files === null ? "" : ` in ${plural(table.files, "file")}`]], ["Size", data(table.live_bytes, size)],
  ];
}

// ---- curves

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plots = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((each) => each.redraw()));
const DURATIONS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 432e6, 864e6, 1728e6, 432e7, 864e7];
/** Hours and minutes, with the date where it begins. */
function clock(_, found, _axis, _space, step) {
  const texts = found.map((each) => new Date(each * 1e3).toISOString());
  return texts.map((text, at) => {
    const day = text.slice(0, 10), isNew = at === 0 || texts[at - 1].slice(0, 10) !== day;
    return step >= 86400 ? day.slice(5) : text.slice(11, step < 60 ? 19 : 16) + (isNew ? "\n" + day : "");
  });
}
/** A chart and what it says in words; `series` are {label, values, color, bars, dash}. */
function chart(title, x, series, { words, isTime = true, format = count, durations = false, target = null, pad = 0 } = {}) {
  const place = h("div", { class: "plot", role: "img", "aria-label": title + ". " + words });
  const axis = (extra) => ({ stroke: () => css("--muted"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif", ...extra });
  const options = {
    width: 300, height: 200, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"), cursor: { y: false, drag: { x: true, y: false } },
    scales: { x: { time: isTime, range: (_, low, high) => [low - pad, high + pad] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
    axes: [axis(isTime ? { values: clock, size: 44 } : { incrs: DURATIONS, values: (_, found) => found.map(span) }), axis({ size: 58, values: (_, found) => found.map(format), ...(durations ? { incrs: DURATIONS } : {}) })],
    series: [{ label: isTime ? "UTC" : "older than", value: (_, v) => (v === null ? "" : isTime ? new Date(v * 1e3).toISOString().slice(0, 19).replace("T", " ") : span(v)) }, ...series.map((each) => ({
      label: each.label, stroke: () => css(each.color), width: each.bars ? 0 : 1.75, dash: each.dash, points: { show: false }, value: (_, v) => (v === null || v === undefined ? "" : format(v)),
      ...(each.bars ? { fill: () => css(each.color), paths: uPlot.paths.bars({ size: [each.bars, 60, 2] }) } : {}) }))],
    hooks: { draw: [(u) => {
      if (target === null || target > u.scales.x.max) return;
      const at = u.valToPos(target, "x", true), c = u.ctx;
      c.save(); c.strokeStyle = css("--bad"); c.setLineDash([6, 4]); c.beginPath(); c.moveTo(at, u.bbox.top); c.lineTo(at, u.bbox.top + u.bbox.height); c.stroke(); c.restore();
    }] },
  };
  let plot = null;
  const fit = () => {
    const width = place.clientWidth;
    if (!width) return;
    if (plot === null) plots.add((plot = new uPlot({ ...options, width }, [x, ...series.map((each) => each.values)], place)));
    else if (plot.width !== width) plot.setSize({ width, height: options.height });
  };
  setTimeout(fit); // once it is in the page
  new ResizeObserver(() => plot && fit()).observe(place);
  return h("div", { class: "chart" }, h("h3", {}, title), place, h("p", {}, words));
}
function values(given, parts, none) {
  if (Array.isArray(given)) return given;
  const all = new Array(parts).fill(none);
  for (const [part, value] of Object.entries(given || {})) all[+part] = value;
  return all;
}
const greatest = (found) => found.reduce((a, b) => (b !== null && b > a ? b : a), 0);
function curves(table, more) {
  if (!more.spans.length) return block("Freshness, rates and lag", h("p", { class: "muted" }, "Nothing was committed yet."));
  const place = h("div", { class: "charts" });
  const show = (one) => place.replaceChildren(...charts(table, one));
  const name = "span-" + index.get(table.name);
  const choice = h("fieldset", {}, h("legend", {}, "Show the last"), more.spans.map((one, at) => h("label", {}, h("input", { type: "radio", name, checked: at === 0, onchange: () => show(one) }), " ", span(one.part_ms * one.parts))));
  show(more.spans[0]);
  return h("div", {}, h("div", { class: "tools" }, choice, h("small", {}, `from ${plural(more.commit_count, "commit")}; drag to zoom, double-click to go back`)), place);
}
function charts(table, one) {
  const parts = one.parts, x = Array.from({ length: parts }, (_, at) => (one.from_ms + (at + 0.5) * one.part_ms) / 1e3);
  const seconds = one.part_ms / 1e3, rate = (given) => values(given, parts, 0).map((each) => each / seconds);
  const ages = values(one.freshness_ms, parts, null), shares = one.freshness_shares;
  const at = (share) => span((shares.find((each) => each[0] >= share) || [0, null])[1]);
  const made = [];
  const fresh = [{ label: "oldest", values: ages, color: "--one" }];
  if (table.target_ms !== null) fresh.push({ label: "target", values: ages.map(() => table.target_ms), color: "--bad", dash: [6, 4] });
  made.push(chart("How old are the newest rows?", x, fresh, { format: span, durations: true, words: `Now ${span(table.freshness_ms)}, at most ${span(greatest(ages))}` + (table.target_ms === null ? "; no target is set." : `; the target is ${span(table.target_ms)}.`), pad: seconds / 2 }));
  if (shares.length) {
    const steps = shares.filter((each, place) => place === 0 || each[1] > shares[place - 1][1]);
    made.push(chart("For how much of the time were they older?", steps.map((each) => each[1]), [{ label: "share of time", values: steps.map((each) => 100 * (1 - each[0])), color: "--one" }],
      { isTime: false, format: (v) => count(v) + " %", target: table.target_ms, words: `Half of the time not older than ${at(0.5)}, 90 % ${at(0.9)}, 99 % ${at(0.99)}, always ${at(1)}.` }));
  }
  const rows = rate(one.rows), records = rate(one.records);
  const rates = [{ label: "rows/s", values: rows, color: "--one", bars: one.records ? 0.5 : 1 }];
  if (one.records) rates.unshift({ label: "records/s", values: records, color: "--two", bars: 1 });
  const total = (given) => count(sum(given)), letters = one.dead_letters ? `, ${total(one.dead_letters)} dead letters` : "", fights = one.conflicts ? `, ${total(one.conflicts)} conflicts` : "";
  made.push(chart("How much is written?", x, rates, { format: few, pad: seconds / 2, words: `${plural(sum(one.rows), "row")} in ${plural(sum(one.commits), "commit")}` + (one.records ? `, of ${total(one.records)} records` : "") + letters + fights + "." }));
  const lags = [], took = values(one.commit_ms, parts, null), late = values(one.event_to_commit_ms, parts, null);
  if (one.event_to_commit_ms) lags.push({ label: "event → commit", values: late, color: "--two", bars: 1 });
  if (one.commit_ms) lags.push({ label: "commit", values: took, color: "--one", bars: 0.5 });
  if (lags.length) made.push(chart("How late is a commit, and how long does it take?", x, lags, { format: span, durations: true, pad: seconds / 2, words: `The longest commit took ${span(greatest(took))}` + (one.event_to_commit_ms ? `; the record that waited longest was ${span(greatest(late))} old.` : ".") }));
  return made;
}

// ---- levels and the time line

function picture(table, more) {
  if (!more.buckets.length) return null;
  const { levels } = table.detail, largest = Math.max(1, ...more.buckets.map((each) => each.levels.reduce((all, one) => all + one.size_bytes, 0)));
  const deepest = Math.max(1, ...more.buckets.flatMap((each) => each.levels.map((one) => one.level || 0)));
  const color = (level) => "l" + (level === null ? 3 : level === 0 ? 0 : Math.max(1, Math.round((5 * level) / deepest)));
  const used = [...new Set(more.buckets.flatMap((each) => each.levels.map((one) => one.level)))].sort((a, b) => a - b);
  const name = (level) => (level === null ? "files" : "level " + level);
  return block("Levels of each bucket",
    h("div", { class: "legend" }, used.map((level) => h("span", {}, h("i", { class: color(level) }), name(level) + (level === 0 ? ", not yet compacted" : "")))),
    more.buckets.map((each) => h("div", { class: "bucket" }, h("span", {}, (each.partition ? each.partition + " · " : "") + (each.bucket < 0 ? "waiting" : "bucket " + each.bucket)),
      h("span", { class: "bar" }, each.levels.map((one) => h("i", { class: color(one.level), title: `${name(one.level)}: ${plural(one.files, "file")}, ${plural(one.rows, "row")}, ${size(one.size_bytes)}`, style: { width: (100 * one.size_bytes) / largest + "%" } }))),
      h("small", {}, h("span", { class: levels.runs_stop !== null && each.runs >= levels.runs_stop ? "bad-text" : levels.runs_stop !== null && each.runs >= levels.runs_trigger ? "warn-text" : null }, plural(each.runs, levels.runs_stop === null ? "file" : "run")), ", ",
        each.levels.map((one) => (one.level === null ? "" : `L${one.level} ${one.files} × `) + size(one.size_bytes)).join(" · ")))),
    levels.buckets > more.buckets.length && h("p", { class: "muted" }, `and ${count(levels.buckets - more.buckets.length)} more buckets, with fewer runs`),
    levels.runs_stop !== null && h("p", { class: "muted" }, `Compacted from ${levels.runs_trigger} runs on; writers wait from ${levels.runs_stop} on.`));
}
const SINCE = { tag: "made", branch: "written", consumer: "read on" };
function timeline(table, more) {
  if (!more.spans.length) return null;
  const one = more.spans[more.spans.length - 1], { parts } = one, { history, holds } = table.detail;
  const end = one.from_ms + one.part_ms * parts;
  const left = (text) => Math.max(0, Math.min(99.5, (100 * (Date.parse(text) - one.from_ms)) / (end - one.from_ms))) + "%";
  const rows = values(one.commits, parts, 0), compact = values(one.compactions, parts, 0), most = Math.max(1, greatest(rows), greatest(compact));
  const bars = (found, kind, up) => found.map((each, at) => each > 0 && h("rect", { class: kind, x: at, width: 0.9, y: up ? 50 - Math.max(6, (50 * each) / most) : 50, height: Math.max(6, (50 * each) / most) }));
  const svg = h("svg", { viewBox: `0 0 ${parts} 100`, preserveAspectRatio: "none", "aria-hidden": "true" }, bars(rows, "c-rows", true), bars(compact, "c-compact", false));
  const lane = (name, track, note) => h("div", { class: "lane" }, h("span", {}, name, note ? h("small", {}, " ", note) : null), track);
  const from = (text, kind) => h("div", { class: "track" }, text ? h("i", { class: kind, style: { left: left(text) }, title: text }) : null);
  return block("Snapshots and what holds them",
    h("div", { class: "legend" }, h("span", {}, h("i", { class: "c-rows" }), "commits of rows, upwards"), h("span", {}, h("i", { class: "c-compact" }), "compactions, downwards")),
    lane("commits", h("div", { class: "track tall" }, svg)),
    lane("snapshots", from(history.earliest, ""), plural(history.snapshots, "snapshot") + (history.kept_bytes === null ? "" : ", keep " + size(history.kept_bytes))),
    holds.slice(0, 50).map((each, at) => lane([badge("", each.kind), " ", each.name], from(more.holds[at], each.kind), [each.snapshot_id === null ? "" : `at snapshot ${each.snapshot_id}`, each.since ? `, ${SINCE[each.kind]} ${span(Date.parse(table.observed) - Date.parse(each.since))} ago` : "", each.kept_bytes === null ? "" : `, keeps ${size(each.kept_bytes)}`])),
    holds.length > 50 && h("p", { class: "muted" }, `and ${count(holds.length - 50)} more`),
    h("div", { class: "ends" }, h("span", {}, "from ", time(new Date(one.from_ms).toISOString())), h("span", {}, "to ", time(table.observed))),
    holds.length === 0 && h("p", { class: "muted" }, "No tag, branch or consumer holds snapshots."));
}

// ---- history

function compactions(more) {
  if (!more.compactions.length) return block("Compactions", h("p", { class: "muted" }, "None is known."));
  const most = Math.max(1, ...more.reasons.map((each) => each.duration_ms));
  return block("Compactions, and why",
    more.reasons.map((each) => h("div", { class: "share" }, h("span", {}, each.reason), h("span", {}, h("i", { style: { width: (100 * each.duration_ms) / most + "%" } })), h("small", {}, `${count(each.compactions)} ×, ${span(each.duration_ms)}, ${size(each.bytes_in)} read, ${plural(each.rows_dropped, "row")} dropped`))),
    h("p", {}), grid("Newest compactions", ["time", "#snapshot", "reason", "bucket", "levels", "#files", "#bytes in", "#bytes out", "#rows dropped", "#took", "by"], more.compactions.map((each) => [
      time(each.time), each.snapshot_id, each.reason, each.bucket === null ? plural(each.bucket_count, "bucket") : (each.partition ? each.partition + " · " : "") + each.bucket,
      each.from_level === null && each.to_level === null ? DASH : `${each.from_level ?? DASH} → ${each.to_level ?? DASH}`, `${each.files_in} → ${each.files_out}`, size(each.bytes_in), size(each.bytes_out), count(each.rows_dropped), span(each.duration_ms), each.user])));
}
function commits(more) {
  if (!more.commits.length) return null;
  return block("Newest commits", grid("Newest commits", ["time", "#snapshot", "kind", "by", "#rows", "#records", "#bytes added", "#took", "#tries", "conflicts"], more.commits.map((each) => [
    time(each.time), [each.snapshot_id, each.expired ? h("small", {}, " expired") : ""], each.kind, each.user, count(each.rows), each.records === null ? DASH : count(each.records), each.bytes_added === null ? DASH : size(each.bytes_added), span(each.duration_ms), each.tries ?? DASH,
    each.conflicts ? h("span", { class: "warn-text" }, `${count(each.conflicts)} with ${each.conflicts_with.join(", ") || "others"}`) : each.conflicts === null ? DASH : "none"])));
}
function schemas(more) {
  const keys = [more.primary_key.length ? `primary key (${more.primary_key.join(", ")})` : "append-only", more.partition_by.length ? `partitioned by ${more.partition_by.join(", ")}` : ""].filter(Boolean).join(", ");
  const options = Object.entries(more.options);
  return block("Schema", h("p", { class: "muted" }, keys),
    h("div", { class: "charts" },
      grid("Columns", ["column", "type"], more.columns.map((each) => [each.name, each.type])),
      h("div", {}, more.schemas.map((each) => h("p", {}, h("b", {}, "Schema " + each.id), " ", h("small", {}, time(each.time)), h("br"), each.changes.slice(0, 30).join("; ") || "no change", each.changes.length > 30 ? ` and ${count(each.changes.length - 30)} more` : "")),
        options.length > 0 && h("p", {}, h("b", {}, "Options"), options.map(([key, value]) => [h("br"), h("code", {}, key + " = " + value)])))));
}

// ---- findings and dead letters

function finding(each) {
  return h("article", { class: "finding", "data-finding": each.name },
    h("header", {}, badge(KIND[each.severity], each.severity), h("b", {}, each.name), h("span", {}, tableLink(each.table)), h("span", { class: "muted" }, data(each.evidence, count), " ", each.unit)),
    h("p", {}, h("small", {}, "why "), each.cause, "."), h("p", {}, h("small", {}, "remedy "), each.remedy, "."), each.command && h("pre", { title: "one click selects it" }, each.command));
}
function findingSection() {
  const notes = findings.filter((each) => each.severity === "note");
  if (!findings.length) return section("findings", "Findings of doctor", 0, empty("Nothing is wrong, as far as the rules of doctor see."));
  const shownFirst = toAct.slice(0, 100);
  return section("findings", "Findings of doctor", findings.length, h("div", { class: "card" },
    toAct.length ? shownFirst.map(finding) : h("div", { class: "empty" }, "Nothing to act on; there are notes."),
    toAct.length > shownFirst.length && folded({ class: "more" }, `${count(toAct.length - shownFirst.length)} more`, () => h("div", {}, toAct.slice(100).map(finding))),
    notes.length > 0 && folded({ class: "more" }, `${plural(notes.length, "note")}: what to know before other programs read these tables`, () => h("div", {}, notes.map(finding)))));
}
function deadSection() {
  const all = doc.dead_letters;
  if (!all.some((each) => each.count || each.error)) return section("dead", "Dead letters", 0, empty("No table holds any."));
  return section("dead", "Dead letters", all.reduce((sofar, each) => sofar + each.count, 0), all.filter((each) => each.count || each.error).map((each) => h("div", { class: "card pad" },
    h("h3", {}, tableLink(each.table), h("small", {}, ` ${each.is_all || each.error ? "" : "the first "}${plural(each.count, "record")}`)),
    each.error && h("p", { class: "bad-text" }, each.error),
    each.causes.map((cause) => h("div", { "data-cause": cause.reason },
      h("div", { class: "share" }, h("span", {}, h("b", {}, cause.pipeline), cause.column ? " · " + cause.column : ""), h("span", {}, cause.reason, h("i", { style: { width: (100 * cause.count) / each.count + "%" } })), h("small", {}, data(cause.count, count), " ×, last ", time(cause.last))),
      cause.samples.map((sample) => h("pre", {}, [sample.topic ?? "?", sample.partition === null ? "" : ` partition ${sample.partition}`, sample.offset === null ? "" : ` offset ${sample.offset}`, sample.key === null ? "" : `, key ${sample.key}`].join(""), h("br"), sample.value === null ? h("span", { class: "muted" }, "no value") : sample.value)))),
    each.cause_count > each.causes.length && h("p", { class: "muted" }, `and ${count(each.cause_count - each.causes.length)} more causes`),
    !doc.has_samples && h("p", { class: "muted" }, "Keys and values are left out (--no-samples)."))));
}

// ---- all of it

document.title = "Freshet report: " + shown(doc.place);
main.replaceChildren(...[header(), attention(), pipelineSection(), tableSection(), findingSection(), deadSection(),
  h("footer", {}, `Freshet ${doc.version}. Times are UTC. Numbers are those of freshet status and freshet doctor at that moment. Charts: uPlot (MIT).`)].flat());
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA/.test(document.activeElement.tagName) && filter.isConnected) { event.preventDefault(); filter.focus(); }
});
const wanted = /^#table-(\d+)$/.exec(location.hash);
if (wanted) openTable(+wanted[1]);
else if (tables.length === 1) document.getElementById("table-0").open = true;
})();
