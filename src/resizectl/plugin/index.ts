/** `kubectl resizectl`: the plugin of kubectl. */
export { runPlugin } from './plugin.ts';
