import { chmodSync, cpSync, rmSync, writeFileSync } from 'node:fs';
import { FLAGS } from './kubelet-unit.ts';

/** Ways in which an installed shim fails to start. */

const FOLDER = '/usr/local/lib/cri-resize-shim';
export const PROGRAM = `${FOLDER}/dist/cri-resize-shim.js`;
const NODE = `${FOLDER}/bin/node`;
const STATE = '/var/lib/cri-resize-shim';

/** A fault, and the function that ends it. */
export interface Fault {
  readonly title: string;
  readonly begin: () => void;
  readonly end: () => void;
}

/** Replaces a file or a folder by a file with this content, or removes it. */
export function replaced(path: string, content: string | undefined): Pick<Fault, 'begin' | 'end'> {
  const aside = `${path}.aside`;
  // A folder of an overlay cannot be renamed.
  const move = (from: string, to: string): void => {
    cpSync(from, to, { recursive: true });
    rmSync(from, { recursive: true });
  };
  return {
    begin() {
      move(path, aside);
      if (content === undefined) return;
      writeFileSync(path, content);
      chmodSync(path, 0o755);
    },
    end() {
      rmSync(path, { recursive: true, force: true });
      move(aside, path);
    },
  };
}

/** An invalid configuration file has another effect: the shim forwards every call. */
export const invalidFlag: Fault = {
  title: 'an invalid flag',
  ...replaced(FLAGS, 'CRI_RESIZE_SHIM_FLAGS=--no-such-flag\n'),
};

/** No installation repairs this, and no check of an installation finds it. */
export const unreadableState: Fault = { title: 'an unreadable state folder', ...replaced(STATE, 'not a folder') };

export const faults: readonly Fault[] = [
  invalidFlag,
  { title: 'a missing Node', ...replaced(NODE, undefined) },
  // env runs the empty file as a script, which succeeds.
  { title: 'an empty Node', ...replaced(NODE, '') },
  { title: 'a broken Node', ...replaced(NODE, '\x7fELF broken') },
  { title: 'a corrupt program file', ...replaced(PROGRAM, 'import {') },
  { title: 'M1: koffi gone', ...replaced(`${FOLDER}/node_modules/koffi`, undefined) },
  { title: 'a crash at the start', ...replaced(PROGRAM, 'process.abort();\n') },
  { title: 'a start that hangs', ...replaced(PROGRAM, 'setInterval(() => undefined, 1e9);\n') },
  unreadableState,
];
