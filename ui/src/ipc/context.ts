import { getContext, setContext } from "svelte";
import type { Client } from "./client";

const KEY = Symbol("client");

/** Hands the client down to every component below. */
export function provideClient(client: Client): void {
  setContext(KEY, client);
}

/** The client that was handed down. */
export function useClient(): Client {
  return getContext<Client>(KEY);
}
