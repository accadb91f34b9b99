/** Memory that is garbage: what V8 frees late, and what the allocator keeps. */
export { releaseMemory } from './release.ts';
export { bufferUsed } from './young-buffers.ts';
