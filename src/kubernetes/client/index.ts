/** A client of the Kubernetes API: connection, requests, errors and events. */
export { apiOf, readLines, readText } from './api.ts';
export type { Api } from './api.ts';
export { IN_CLUSTER, openConnection } from './connection.ts';
export { ApiRefusal, ApiUnreached, isGone, kindOf, wordsOf } from './errors.ts';
export { eventOf, microTime } from './event-body.ts';
