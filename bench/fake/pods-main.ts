import { serveTimed } from './edge.ts';
import { paced } from './pace.ts';
import { makeNode } from './pods.ts';
import { podsRuntime } from './pods-runtime.ts';

/**
 * A runtime with pods that can be resized. It reports how much time calls have spent in it. Arguments: its socket, the
 * folder of the cgroups, the number of pods, the number of containers of each pod, and, to simulate the update times of
 * a real runtime, the milliseconds of each update and the number of concurrent updates.
 */
const [, , socket = '', root = '', pods, containers, updateMs, atOnce] = process.argv;
const pace = updateMs === undefined ? undefined : paced(Number(updateMs), Number(atOnce));
serveTimed(socket, podsRuntime(root, makeNode(Number(pods), Number(containers)), pace));
// The pipe of the process that started this one. The runtime ends with it.
process.stdin.resume().on('end', () => process.exit(0));
