/** Renders GraphiQL into the page. */

import "graphiql/setup-workers/vite";
import "graphiql/style.css";
import "./page.css";

import { createRoot } from "react-dom/client";

import { Page } from "./page";

const root = document.getElementById("root");
if (root === null) throw new Error("The page has no #root.");
createRoot(root).render(<Page />);
