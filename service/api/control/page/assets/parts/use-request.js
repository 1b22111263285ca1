// Requests of components: the response, the error, or neither while it is under way.

import { useEffect, useState } from "../vendor/hooks.js";

/**
 * Calls `load` whenever one of `inputs` changes. Returns `{ value, error, isLoading, reload }`; a response that is not
 * wanted any more is dropped.
 */
export function useRequest(load, inputs) {
  const [round, setRound] = useState(0);
  const [result, setResult] = useState({ inputs: null, value: null, error: null });
  const key = JSON.stringify(inputs);
  useEffect(() => {
    let isWanted = true;
    const finish = (members) => { if (isWanted) setResult({ inputs: key, value: null, error: null, ...members }); };
    load().then((value) => finish({ value }), (error) => finish({ error }));
    return () => { isWanted = false; };
  }, [key, round]);
  const isCurrent = result.inputs === key;
  return {
    value: isCurrent ? result.value : null,
    error: isCurrent ? result.error : null,
    isLoading: !isCurrent,
    reload: () => setRound((count) => count + 1),
  };
}
