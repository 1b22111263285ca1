// The colours: those of the system, or those that the user chose in the settings of this browser.

const NAME = "octet-theme";
export const THEMES = ["system", "light", "dark"];

export function theme() {
  const stored = localStorage.getItem(NAME);
  return THEMES.includes(stored) ? stored : THEMES[0];
}

export function chooseTheme(chosen) {
  if (chosen === THEMES[0]) localStorage.removeItem(NAME);
  else localStorage.setItem(NAME, chosen);
  useTheme();
}

/** Applies the chosen colours to the page. */
export function useTheme() {
  document.documentElement.dataset.theme = theme();
}
