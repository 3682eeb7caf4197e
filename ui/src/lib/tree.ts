// Changed files as the lines of a tree: a folder once, with its files below.
import type { ChangedFile } from "../ipc/client";

/** A line of the tree. */
export type Line = { kind: "dir"; path: string } | { kind: "file"; name: string; depth: number; file: ChangedFile };

/** The folder and the name of a path in the escaped form; `\x2f` never occurs in it, so a slash is a slash. */
export function cut(path: string): { dir: string; name: string } {
  const at = path.lastIndexOf("/");
  return at < 0 ? { dir: "", name: path } : { dir: path.slice(0, at), name: path.slice(at + 1) };
}

/** Folders in order, each with its files; files of the top come last, as in the mock. */
export function lines(files: readonly ChangedFile[]): Line[] {
  const byDir = new Map<string, ChangedFile[]>();
  for (const f of files) {
    const { dir } = cut(f.path);
    const list = byDir.get(dir);
    if (list) list.push(f);
    else byDir.set(dir, [f]);
  }
  const dirs = [...byDir.keys()].sort((a, b) => (a === "" ? 1 : b === "" ? -1 : a < b ? -1 : a > b ? 1 : 0));
  const out: Line[] = [];
  for (const dir of dirs) {
    if (dir !== "") out.push({ kind: "dir", path: dir });
    for (const file of byDir.get(dir) ?? []) out.push({ kind: "file", name: cut(file.path).name, depth: dir === "" ? 0 : 1, file });
  }
  return out;
}

/** The files in the order in which the tree shows them. */
export function inOrder(files: readonly ChangedFile[]): ChangedFile[] {
  return lines(files).flatMap((l) => (l.kind === "file" ? [l.file] : []));
}
