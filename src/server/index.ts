export { openFrontDoor } from './front-door.ts';
export {
  callFields,
  createInterceptors,
  createLocalServer,
  interceptionOf,
  localHandlers,
  noInterceptors,
} from './handlers/index.ts';
export type { Interceptors } from './handlers/index.ts';
export { listen, listenOnPassed } from './listener/index.ts';
export type { Listener } from './listener/index.ts';
export { switchReport } from './proxy-report.ts';
export { serveConnection } from './proxy/index.ts';
