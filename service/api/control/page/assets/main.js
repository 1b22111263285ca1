// The page: draws the view that the address names, and follows the server.

import { html } from "./app/html.js";
import { follow } from "./app/live.js";
import { Shell } from "./app/shell.js";
import { useTheme } from "./app/theme.js";
import { render } from "./vendor/preact.js";

useTheme();
const place = document.getElementById("app");
place.replaceChildren();
render(html`<${Shell} />`, place);
follow();
