/** Memory of buffers that are garbage, which V8 frees late. */
export { bufferUsed } from './young-buffers.ts';
