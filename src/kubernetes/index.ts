/** A Kubernetes API client: connection, requests, errors, events. Code that needs a kubeconfig loads by file. */
export { type Api, apiOf, parsedResponse, readText } from './client/api.ts';
export { IN_CLUSTER, openConnection } from './client/connection.ts';
export { ApiRefusal, isForbidden, wordsOf } from './client/errors.ts';
