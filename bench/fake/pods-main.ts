import { serveTimed } from './edge.ts';
import { makeNode } from './pods.ts';
import { podsRuntime } from './pods-runtime.ts';

/**
 * A runtime whose pods can be resized, and which tells how long calls have been with it. Arguments: its socket, the folder of the
 * cgroups, how many pods it has, and how many containers each of them.
 */
const [, , socket = '', root = '', pods, containers] = process.argv;
serveTimed(socket, podsRuntime(root, makeNode(Number(pods), Number(containers))));
// The pipe of whoever started it: ends with it.
process.stdin.resume().on('end', () => process.exit(0));
