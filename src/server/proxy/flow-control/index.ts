/** HTTP/2 flow control: the windows of the receivers, and the data that waits for them. */
export { BackendFlow, backendInitial, largestInitial } from './backend-flow.ts';
export { FlowControl } from './flow-control.ts';
export { Lane } from './lane.ts';
export type { LaneSource } from './lane.ts';
