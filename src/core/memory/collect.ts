import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

interface Options {
  readonly type: 'minor' | 'major';
  /** `last-resort` also returns to the kernel the pages that V8 otherwise keeps for new objects. */
  readonly flavor?: 'last-resort';
}
type Collect = (options: Options) => void;

const EVERYTHING: Options = { type: 'major', flavor: 'last-resort' };

let collect: Collect | undefined;

/** Returns V8's `gc`, which only contexts that are made later have. */
function exposedCollect(): Collect {
  setFlagsFromString('--expose-gc');
  return runInNewContext('gc') as Collect;
}

/** Collects the young generation, which takes about 1 ms. */
export function collectYoung(): void {
  collect ??= exposedCollect();
  collect({ type: 'minor' });
}

/** Collects all garbage. */
export function collectAll(): void {
  collect ??= exposedCollect();
  collect({ type: 'major' });
}

/**
 * Collects all garbage in several collections, returns free pages to the kernel, and collects the compiled code of all functions that
 * are not running: V8 compiles a function again when it is called. By itself it only does so with what six collections have not seen
 * running.
 */
export function collectCode(): void {
  setFlagsFromString('--bytecode-old-age=1');
  setFlagsFromString('--flush-baseline-code');
  collect ??= exposedCollect();
  collect(EVERYTHING);
  // V8's defaults.
  setFlagsFromString('--no-flush-baseline-code');
  setFlagsFromString('--bytecode-old-age=6');
}
