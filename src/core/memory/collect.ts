import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

type Collect = (options?: { readonly type: 'minor' }) => void;

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
  collect();
}
