import { fromText } from './from-text.ts';
import { pathForm, readAbsolutePath } from './path.ts';

/** Said instead of a file by a shim that runs as a pod. */
const inCluster = 'in-cluster';
export const kubeconfigForm = `${pathForm}, or ${inCluster} for the service account of the pod that this runs in; empty for none`;

/** An absolute path, `in-cluster` or nothing. */
export const kubeconfig = fromText((text, refuse) =>
  text === '' || text === inCluster ? text : (readAbsolutePath(text) ?? refuse(`must be ${kubeconfigForm}`)),
);

/** Names of nodes (RFC 1123). Part of a field selector, so nothing else goes in there. */
export const nodeNameForm = 'the name of a node: lower-case letters, digits, "-" and "."';
export const nodeName = fromText((text, refuse) =>
  text === '' || /^[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?$/.test(text) ? text : refuse(`must be ${nodeNameForm}`),
);
