"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"] };
  const hidden = new Set();
  let mode = dark.matches ? "dark" : "light";

  const trouble = (text) => {
    const box = document.getElementById("trouble");
    box.textContent = text;
    box.hidden = false;
  };

  /* plotly.js lies in the page, gzipped, unless the page was built with it inline. */
  const loadPlotly = async () => {
    const packed = document.getElementById("plotlyjs");
    if (!packed) return;
    if (typeof DecompressionStream === "undefined") {
      throw new Error("This browser cannot unpack the charts. Use a newer one, or build the page with --plotlyjs inline.");
    }
    const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    packed.remove();
    document.head.append(script);
    script.remove();
  };

  /* Figures carry light colours; every string that is one of them is replaced. Typed arrays are left alone. */
  const recolor = (value) => {
    if (typeof value === "string") return data.dark[value] ?? value;
    if (Array.isArray(value)) return value.map(recolor);
    if (value === null || typeof value !== "object" || "bdata" in value) return value;
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, recolor(item)]));
  };

  const draw = (element) => {
    const source = data.figures[element.id];
    const copy = mode === "dark" ? recolor(source) : structuredClone(source);
    copy.layout.template = data.templates[mode];
    const narrow = element.clientWidth < 560;
    if (narrow) copy.layout.margin = { ...(copy.layout.margin ?? { t: 16, b: 52 }), l: 48, r: 8 };
    for (const trace of copy.data) {
      if (hidden.has(trace.legendgroup)) trace.visible = false;
      if (narrow && trace.marker?.size === 9) trace.marker.size = 7;
    }
    return Plotly.react(element, copy.data, copy.layout, config);
  };

  const shown = (root) => [...root.querySelectorAll(".plot")].filter((element) => !element.closest("[hidden]"));
  const drawAll = (root = document) => Promise.all(shown(root).map(draw));

  const show = (panel, index) => {
    const views = [...panel.querySelectorAll(":scope > .view")];
    views.forEach((view, place) => { view.hidden = place !== index; });
    panel.querySelectorAll(".switch button").forEach((button) => {
      button.setAttribute("aria-pressed", String(Number(button.value) === index));
    });
    return window.Plotly ? drawAll(panel) : null;
  };

  const prepare = (panel) => {
    const views = [...panel.querySelectorAll(":scope > .view")];
    if (views.length) show(panel, Math.max(0, views.findIndex((view) => view.dataset.start === "1")));
    panel.querySelectorAll(".switch button").forEach((button) => {
      button.addEventListener("click", () => show(panel, Number(button.value)));
    });
    const select = panel.querySelector(".switch select");
    if (select) select.addEventListener("change", () => show(panel, Number(select.value)));
    panel.querySelectorAll(".legend button").forEach((button) => {
      button.addEventListener("click", () => toggle(data.legends[panel.id][Number(button.dataset.arm)]));
    });
  };

  const toggle = (arm) => {
    if (!hidden.delete(arm)) hidden.add(arm);
    document.querySelectorAll(".legend button").forEach((button) => {
      const name = data.legends[button.closest(".panel").id][Number(button.dataset.arm)];
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
    });
    drawAll();
  };

  /* A textual cell that a spreadsheet would run as a formula gets a leading quote. */
  const csvField = (cell) => {
    const raw = cell.dataset.v ?? (cell.textContent === "–" ? "" : cell.textContent);
    const safe = cell.dataset.v === undefined && /^[=+\-@\t\r]/.test(raw) ? "'" + raw : raw;
    return /[",\n\r]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };
  const csv = (table) => [...table.rows].map((row) => [...row.cells].map(csvField).join(",")).join("\r\n") + "\r\n";

  const copyText = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  const copyTable = async (button) => {
    await copyText(csv(button.parentElement.querySelector("table")));
    const label = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  };

  const paint = (next) => {
    mode = next;
    document.querySelectorAll(".swatch").forEach((drawing) => { drawing.style.color = drawing.dataset[mode]; });
    return drawAll();
  };

  document.querySelectorAll(".panel").forEach(prepare);
  document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", () => copyTable(button)));
  loadPlotly()
    .then(() => paint(mode))
    .then(() => {
      dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
      window.addEventListener("beforeprint", () => paint("light"));
      window.addEventListener("afterprint", () => paint(dark.matches ? "dark" : "light"));
      document.documentElement.dataset.ready = "1";
    })
    .catch((error) => trouble(error.message));
})();
