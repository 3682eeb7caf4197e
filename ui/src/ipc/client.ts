// The one seam to the Rust side: the only file that imports the bindings or @tauri-apps.
import { Channel, invoke } from "@tauri-apps/api/core";
import type * as B from "./bindings";

export type * from "./bindings";

/** A failure with a code to switch on and words for the person. */
export class AppError extends Error {
  constructor(
    readonly code: string,
    message: string,
  ) {
    super(message);
    this.name = "AppError";
  }
}

/** Turns whatever was thrown into an `AppError`. */
export function asAppError(e: unknown): AppError {
  if (e instanceof AppError) return e;
  if (typeof e === "object" && e !== null && "code" in e && "message" in e) return new AppError(String(e.code), String(e.message));
  return new AppError("window", e instanceof Error ? e.message : String(e));
}

/** Ends a subscription. */
export type Close = () => void;

/** A terminal's connection to the run's PTY. */
export interface TerminalLink {
  /** Bytes typed or pasted. */
  input(bytes: Uint8Array): void;
  resize(cols: number, rows: number): void;
  /** Tells how many bytes were drawn, so that a flood waits outside the window. */
  drawn(bytes: number): void;
  close: Close;
}

/** What a terminal is told. */
export interface TerminalSink {
  output(bytes: Uint8Array): void;
  /** The run is over; `null` where how it ended is not known. */
  ended(outcome: B.Outcome | null): void;
}

/** Everything that the window asks of the Rust side. */
export interface Client {
  overview(): Promise<B.Overview>;
  /** Calls `changed` when repositories or tasks are no longer what `overview` said. */
  watch(changed: () => void): Close;
  machine(): Promise<B.Machine>;
  addRepo(path: string): Promise<B.Repo>;
  branches(repo: string): Promise<B.Branch[]>;
  kits(): Promise<B.Kit[]>;
  /** Names of policies. */
  policies(): Promise<string[]>;
  /** A policy in words, as a new task with this agent would have it. */
  policy(name: string, agent: string | null): Promise<B.PolicyWords>;
  task(task: string): Promise<B.TaskDetail>;
  create(task: B.NewTask, progress: (words: string) => void): Promise<B.Task>;
  /** Starts the task's agent again, or a shell in the same jail's make. */
  launch(task: string, what: B.Start): Promise<void>;
  demo(progress: (words: string) => void): Promise<B.Task>;
  /** Stops every process where it is; `proceed` lets them go on. */
  pause(task: string): Promise<void>;
  proceed(task: string): Promise<void>;
  /** Ports that programs of the last run took; the last is the likeliest. */
  ports(task: string): Promise<number[]>;
  /** A link of one use to a port of the sandbox. */
  preview(task: string, port: number): Promise<string>;
  /** Opens one in the person's browser. */
  browse(task: string, port: number): Promise<void>;
  stop(task: string): Promise<void>;
  discard(task: string): Promise<void>;
  events(task: string, from: number, batch: (b: B.EventBatch) => void, failed: (e: AppError) => void): Close;
  terminal(task: string, cols: number, rows: number, sink: TerminalSink): Promise<TerminalLink>;
  /** Freezes the workspace as a new candidate and reads what changed. */
  look(task: string): Promise<B.Changes>;
  fileDiff(task: string, tree: string, path: string): Promise<B.FileDiff>;
  decide(task: string, tree: string, accept: string[], reject: string[]): Promise<B.Review>;
  /** Approves exactly what the tree and the review show, and applies it. */
  apply(task: string, tree: string, result: string, onto: string, message: string): Promise<B.Applied>;
  undo(task: string): Promise<B.Applied>;
  /** Open asks of all tasks and those that were closed at or after a moment, oldest first. */
  asks(since: number): Promise<B.Ask[]>;
  /** Answers the ask of which exactly this was shown. */
  answer(ask: string, digest: string, answer: B.Answer): Promise<void>;
  /** Newest first. */
  grants(): Promise<B.Grant[]>;
  /** Takes a grant back and closes what lives by it. */
  revoke(grant: string): Promise<B.Revoked>;
}

async function call<T>(command: string, args: Record<string, unknown> = {}): Promise<T> {
  try {
    return await invoke<T>(command, args);
  } catch (e) {
    throw asAppError(e);
  }
}

function words(progress: (words: string) => void): Channel<string> {
  return new Channel<string>(progress);
}

/** A view on the Rust side, opened by `command` and ended by `view_close`, also when it is closed before it stood. */
function view(command: string, args: Record<string, unknown>, failed: (e: AppError) => void): { id: Promise<number | null>; close: Close } {
  let closed = false;
  const id = call<number>(command, args).catch((e: unknown) => {
    failed(asAppError(e));
    return null;
  });
  const close = () => {
    if (closed) return;
    closed = true;
    void id.then((view) => (view === null ? undefined : call<void>("view_close", { view })));
  };
  return { id, close };
}

/** The client of the real window. */
export const tauriClient: Client = {
  overview: () => call("overview"),
  watch(changed) {
    const channel = new Channel<null>(() => changed());
    return view("watch", { channel }, () => undefined).close;
  },
  machine: () => call("machine"),
  addRepo: (path) => call("repo_add", { path }),
  branches: (repo) => call("branches", { repo }),
  kits: () => call("kits"),
  policies: () => call("policies"),
  policy: (name, agent) => call("policy", { name, agent }),
  task: (task) => call("task", { task }),
  create: (task, progress) => call("create", { task, progress: words(progress) }),
  launch: (task, what) => call("launch", { task, what }),
  demo: (progress) => call("demo", { progress: words(progress) }),
  pause: (task) => call("pause", { task }),
  proceed: (task) => call("proceed", { task }),
  ports: (task) => call("ports", { task }),
  preview: (task, port) => call("preview", { task, port }),
  browse: (task, port) => call("browse", { task, port }),
  stop: (task) => call("stop", { task }),
  discard: (task) => call("discard", { task }),
  events(task, from, batch, failed) {
    return view("events", { task, from, channel: new Channel<B.EventBatch>(batch) }, failed).close;
  },
  async terminal(task, cols, rows, sink) {
    const output = new Channel<ArrayBuffer | number[]>((m) => sink.output(new Uint8Array(m)));
    const ended = new Channel<B.Outcome | null>((o) => sink.ended(o));
    const id = await call<number>("terminal_open", { task, cols, rows, output, ended });
    // Keystrokes leave in the order in which they were typed: each waits for the one before.
    let last: Promise<unknown> = Promise.resolve();
    const send = (command: string, args: Record<string, unknown>) => {
      last = last.then(() => call(command, { view: id, ...args })).catch(() => undefined);
    };
    return {
      input(bytes) {
        for (let at = 0; at < bytes.length; at += 32768) send("terminal_input", { bytes: Array.from(bytes.subarray(at, at + 32768)) });
      },
      resize: (c, r) => send("terminal_resize", { cols: c, rows: r }),
      drawn: (bytes) => void call("terminal_drawn", { view: id, bytes }).catch(() => undefined),
      close: () => void call("view_close", { view: id }).catch(() => undefined),
    };
  },
  look: (task) => call("look", { task }),
  fileDiff: (task, tree, path) => call("file_diff", { task, tree, path }),
  decide: (task, tree, accept, reject) => call("decide", { task, tree, accept, reject }),
  apply: (task, tree, result, onto, message) => call("apply", { task, tree, result, onto, message }),
  undo: (task) => call("undo", { task }),
  asks: (since) => call("asks", { since }),
  answer: (ask, digest, answer) => call("answer", { ask, digest, answer }),
  grants: () => call("grants"),
  revoke: (grant) => call("revoke", { grant }),
};
