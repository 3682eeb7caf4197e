import { mount } from "svelte";
import App from "./App.svelte";
import { tauriClient, type Client } from "./ipc/client";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/inbox.css";

function start(client: Client): void {
  const target = document.getElementById("app");
  if (target) mount(App, { target, props: { client } });
}

// `npm run dev` in a browser has no Rust side; the built window always has one and carries no fake.
if (import.meta.env.DEV && !("__TAURI_INTERNALS__" in window)) {
  void import("./ipc/fake").then(({ fakeClient }) => start(fakeClient(new URLSearchParams(location.search).has("empty"), true)));
} else start(tauriClient);
