// Injected into the bundles of the daemon: the global Buffer is a getter, which V8 calls at each use.
export { Buffer } from 'node:buffer';
