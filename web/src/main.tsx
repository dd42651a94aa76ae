// Renders the dashboard into the page.
import { render } from "preact";
import { App } from "./app.tsx";
import "./style/base.css";
import "./style/parts.css";
import "./style/views.css";

const root = document.getElementById("app");
if (root) render(<App />, root);
