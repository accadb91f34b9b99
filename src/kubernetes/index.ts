/** A client of the Kubernetes API: connection, requests, errors and events. What needs a kubeconfig is loaded by file. */
export { type Api, apiOf, parsedResponse, readText } from './client/api.ts';
export { IN_CLUSTER, openConnection } from './client/connection.ts';
export { ApiRefusal, ApiUnreached, isForbidden, wordsOf } from './client/errors.ts';
export { eventOf, microTime } from './client/event-body.ts';
