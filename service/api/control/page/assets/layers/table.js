// The table of layers: kernel, time, share of the time, and of the machine's peak; and why a layer is not in integers.

import { count, duration } from "../app/format.js";
import { html } from "../app/html.js";
import { Bar } from "../parts/basics.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";

const ORDERS = { execution: "in order of execution", time: "slowest first" };

export function LayerTable({ explanation: { profile, layers }, names, chosen, onChoose }) {
  const [order, setOrder] = useState("execution");
  const weight = (layer) => (profile ? layer.seconds : layer.macs);
  const whole = layers.reduce((sum, layer) => sum + weight(layer), 0) || 1;
  const most = Math.max(...layers.map(weight), Number.MIN_VALUE);
  const rows = layers.map((layer, index) => ({ layer, index }));
  if (order === "time") rows.sort((a, b) => weight(b.layer) - weight(a.layer));
  return html`
    <div class="switch" role="group" aria-label="Order">${Object.entries(ORDERS).map(([id, title]) => html`
      <button key=${id} type="button" aria-pressed=${String(id === order)} onClick=${() => setOrder(id)}>${title}</button>`)}</div>
    <div class="scroll" tabindex="0" role="region" aria-label="The layers" id="layers">
      <ul class="bars layers">${rows.map(({ layer, index }) => html`<${Row} key=${index} layer=${layer} index=${index} name=${names[index]} profile=${profile}
        share=${weight(layer) / whole} length=${weight(layer) / most} isChosen=${index === chosen} onChoose=${onChoose} />`)}</ul>
    </div>
  `;
}

function Row({ layer, index, name, profile, share, length, isChosen, onChoose }) {
  const row = useRef(null);
  useEffect(() => { if (isChosen) row.current.scrollIntoView({ block: "nearest" }); }, [isChosen]);
  const peak = layer.peak_percent;
  const figures = [profile ? `${(100 * share).toFixed(1)} % of the time` : null, peak ? `${peak.toFixed(1)} % of peak` : null, layer.operators, ...factsOf(layer)];
  const why = [...new Set(Object.values(layer.reasons))];
  return html`<li ref=${row} class=${`${layer.kernel ? "" : "plain"} ${isChosen ? "chosen" : ""}`} data-layer=${index}>
    <button type="button" class="link name" title=${layer.layer} aria-pressed=${String(isChosen)} onClick=${() => onChoose(index)}>${`${index + 1}. ${name}`}</button>
    <span class="quiet kernel">${layer.kernel ?? "no kernel"}</span>
    <${Bar} share=${length} kind=${layer.kernel ? (peak ? "timed" : "") : "slow"} ideal=${peak ? peak / 100 : null} />
    <span class="value">${profile ? duration(layer.seconds) : layer.macs ? `${count(layer.macs)} MAC` : ""}</span>
    <span class="quiet note">${figures.filter(Boolean).join(" · ")}</span>
    ${why.length > 0 && html`<span class="note why">${`${layer.kind === "float" ? "In float" : "No kernel"}: ${why.join("; ")}`}</span>`}
    ${isChosen && html`<span class="quiet note">${layer.layer}</span>`}
  </li>`;
}

/** The properties of a layer's kernel, in words; properties that are zero are left out. */
function factsOf({ facts }) {
  return Object.entries(facts).flatMap(([name, fact]) => {
    if (typeof fact === "string") return [fact];
    return fact ? [`${fact} ${name.replaceAll("_", " ")}`] : [];
  });
}
