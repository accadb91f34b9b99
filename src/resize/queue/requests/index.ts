/** What a resize asks for, and its state over time. */
export { noMemoryRequests, readRequested } from './request.ts';
export type { MemoryRequests, ReadRequest, RequestedPod, RequestedResources } from './request.ts';
export { askedChanges, fieldsOf, withoutFields } from './requested-fields.ts';
export { hasEnded, historyEntry, stateEvent } from './resize.ts';
export type { CancelReason, RequestsAround, Resize, ResizeCounts, ResizeEvent } from './resize.ts';
