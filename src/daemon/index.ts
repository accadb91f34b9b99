export { holdLittleMemory } from './heap.ts';
export { serveMetrics } from './metrics.ts';
export { neighboursOf } from './resize-api.ts';
export { createResizing, noResizing } from './resizing.ts';
export { stopSignal } from './stop-signal.ts';
