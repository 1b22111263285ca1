// Draws uPlot's charts in the colours of the page.

import { html } from "../app/html.js";
import { useEffect, useRef } from "../vendor/hooks.js";
import uPlot from "../vendor/uplot.js";

const STYLE = "uplot-style";

/**
 * A chart with axes.
 *
 * @param {function(string): Object} options returns uPlot's options without the width; its argument returns the value of
 *   a CSS variable, for colours.
 * @param {Array[]} data uPlot's data: the values of the horizontal axis, and those of each line.
 * @param {string} label a description of the chart for users of screen readers.
 * @param {string} shape anything that changes when the options change.
 */
export function Plot({ options, data, label, height = 130, shape = "" }) {
  const place = useRef(null);
  const plot = useRef(null);
  useEffect(() => {
    loadStyle();
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const element = place.current;
    const size = () => ({ width: Math.max(element.clientWidth, 50), height });
    const drawn = new uPlot({ ...size(), legend: { show: false }, ...options(colour) }, data, element);
    const observer = new ResizeObserver(() => drawn.setSize(size()));
    observer.observe(element);
    plot.current = drawn;
    return () => {
      observer.disconnect();
      drawn.destroy();
      plot.current = null;
    };
  }, [shape, document.documentElement.dataset.theme]);
  useEffect(() => plot.current?.setData(data), [data]);
  return html`<div class="plot" ref=${place} role="img" aria-label=${label}></div>`;
}

/** Returns an axis of uPlot in the colours of the page. */
export function axis(colour, members) {
  return { stroke: colour("--quiet"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { show: false }, font: "11px system-ui", ...members };
}

function loadStyle() {
  if (document.getElementById(STYLE)) return;
  const link = document.createElement("link");
  Object.assign(link, { id: STYLE, rel: "stylesheet", href: new URL("../vendor/uplot.css", import.meta.url).href });
  document.head.append(link);
}
