// The page of an autopsy.
import { el } from "./dom.js";
import { decode } from "./data.js";

const model = await decode(document.getElementById("data").textContent);
document.getElementById("page").replaceChildren(el("h1", { text: model.what }));
