/** A client of the Kubernetes API: connection, requests, errors and events. */
export { apiOf, readText } from './api.ts';
export type { Api } from './api.ts';
export { IN_CLUSTER, openConnection } from './connection.ts';
export { ApiRefusal, ApiUnreached, isForbidden, isGone, isTooNew, kindOf, wordsOf } from './errors.ts';
export { eventOf, microTime } from './event-body.ts';
export { parsedResponse } from './parsed-response.ts';
export { readItems, readLines } from './pieces.ts';
export type { Piece } from './pieces.ts';
