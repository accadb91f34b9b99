export { ReclaimAhead } from './reclaim-ahead.ts';
export type { AheadTree, StepAhead } from './reclaim-ahead.ts';
export { makeRoom } from './reclaim.ts';
export type { RoomMade, RoomOptions, RoomTree } from './reclaim.ts';
