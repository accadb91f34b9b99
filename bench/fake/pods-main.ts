import { serveTimed } from './edge.ts';
import { makeNode } from './pods.ts';
import { podsRuntime } from './pods-runtime.ts';

/**
 * A runtime whose pods can be resized, and which reports how long calls have been with it. Arguments: its socket, the
 * folder of the cgroups, the number of pods, and the number of containers of each pod.
 */
const [, , socket = '', root = '', pods, containers] = process.argv;
serveTimed(socket, podsRuntime(root, makeNode(Number(pods), Number(containers))));
// The pipe of the process that started this one. The runtime ends with it.
process.stdin.resume().on('end', () => process.exit(0));
