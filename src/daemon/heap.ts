import { setFlagsFromString } from 'node:v8';

/**
 * Keeps V8 from holding memory that it has no need of: a process on every node pays for it on every node. What the shim
 * makes for a call is garbage when the call ends, so collecting it often costs little; V8 would rather let its space for
 * new objects grow to 32 MB, and the rest by half again before it collects.
 *
 * Called when all is loaded: Node's own modules come compiled, and V8 takes that only under the flags that it was compiled with. Set
 * before, these flags make it compile http2, tls and what they need anew: 15 ms of a start, and half a megabyte.
 */
export function holdLittleMemory(): void {
  setFlagsFromString('--semi-space-growth-factor=1');
  setFlagsFromString('--heap-growing-percent=20');
  // Of so small a space several threads at once only cost: waking them takes longer than collecting it does.
  setFlagsFromString('--no-parallel-scavenge');
}
