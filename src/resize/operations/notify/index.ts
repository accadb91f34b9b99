/** Reports what a resize has changed to the runtime. */
export { notifyRuntime } from './notify-runtime.ts';
