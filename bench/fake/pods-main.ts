import { serveTimed } from './edge.ts';
import { paced } from './pace.ts';
import { makeNode } from './pods.ts';
import { podsRuntime } from './pods-runtime.ts';

/**
 * A runtime whose pods can be resized, and which reports how long calls have been with it. Arguments: its socket, the
 * folder of the cgroups, the number of pods, the number of containers of each pod, and, for a runtime that takes as
 * long as a real one for an update, the milliseconds of each and how many run at the same time.
 */
const [, , socket = '', root = '', pods, containers, updateMs, atOnce] = process.argv;
const pace = updateMs === undefined ? undefined : paced(Number(updateMs), Number(atOnce));
serveTimed(socket, podsRuntime(root, makeNode(Number(pods), Number(containers)), pace));
// The pipe of the process that started this one. The runtime ends with it.
process.stdin.resume().on('end', () => process.exit(0));
