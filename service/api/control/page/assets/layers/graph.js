// The graph of the layers, laid out by dagre. The colour of a layer is its share of the time.

import { duration, count } from "../app/format.js";
import { html } from "../app/html.js";
import { useEffect, useMemo, useRef } from "../vendor/hooks.js";
import { Graph as Layout, layout } from "../vendor/dagre.js";

const [WIDTH, HEIGHT] = [190, 40];
const MARGIN = 8;
const LONGEST = 26; // letters that fit into a node

export function Graph({ explanation, names, chosen, onChoose }) {
  const { profile, layers, edges } = explanation;
  const graph = useMemo(() => laidOut(layers.length, edges ?? []), [explanation]);
  const weight = (layer) => (profile ? layer.seconds : layer.macs);
  const most = Math.max(...layers.map(weight), Number.MIN_VALUE);
  const place = useRef(null);
  useEffect(() => { if (chosen !== null) place.current.querySelector(".chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" }); }, [chosen]);
  return html`
    <p class="legend"><span class="of-integer">integers</span> <span class="of-float">float</span> <span class="of-layout">layout changes</span> <span class="quiet">${`the darker, the more ${profile ? "time" : "multiply-accumulates"}`}</span></p>
    <div class="scroll graph" id="graph" ref=${place} tabindex="0" role="region" aria-label="The graph of the layers">
      <svg width=${graph.width} height=${graph.height} viewBox=${`0 0 ${graph.width} ${graph.height}`} role="img" aria-label=${`${layers.length} layers and their connections; the table has the same layers`}>
        ${graph.lines.map((line) => html`<path key=${line} class="edge" d=${line} />`)}
        ${layers.map((layer, index) => {
    const { x, y } = graph.nodes[index];
    const value = profile ? duration(layer.seconds) : `${count(layer.macs)} MAC`;
    return html`<g key=${index} class=${`node ${typeOf(layer)} ${index === chosen ? "chosen" : ""}`} style=${{ "--share": weight(layer) / most }} transform=${`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`} onClick=${() => onChoose(index)}>
          <title>${layer.layer}</title>
          <rect width=${WIDTH} height=${HEIGHT} rx="6" />
          <text x="8" y="16">${shortened(`${index + 1}. ${names[index]}`)}</text>
          <text x="8" y="32" class="small">${`${layer.kernel ?? "no kernel"} · ${value}`}</text>
        </g>`;
  })}
      </svg>
    </div>
  `;
}

/** Float is anything that is computed by neither integer kernels nor layout changes. */
function typeOf({ kind }) {
  if (kind === "integer") return "of-integer";
  return kind === "layout" ? "of-layout" : "of-float";
}

function shortened(text) {
  return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text;
}

/** Returns the positions of the nodes (their centers), the edges as paths, and the size of the whole. */
function laidOut(count, edges) {
  const graph = new Layout();
  graph.setGraph({ rankdir: "TB", nodesep: 24, ranksep: 26, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  for (let index = 0; index < count; index += 1) graph.setNode(String(index), { width: WIDTH, height: HEIGHT });
  for (const [from, to] of edges) graph.setEdge(String(from), String(to));
  layout(graph);
  const nodes = Array.from({ length: count }, (_, index) => graph.node(String(index)));
  const lines = graph.edges().map((edge) => pathOf(graph.edge(edge).points));
  const { width, height } = graph.graph();
  return { nodes, lines, width: Math.ceil(width), height: Math.ceil(height) };
}

function pathOf([first, ...others]) {
  return `M${round(first.x)} ${round(first.y)}${others.map(({ x, y }) => `L${round(x)} ${round(y)}`).join("")}`;
}

function round(value) {
  return Math.round(value * 10) / 10;
}
