/** Readers of the values of settings, from text, and the forms that errors and the documentation name. */
export { bind, bindForm } from './bind.ts';
export { duration, durationForm, durationPattern, parseDuration } from './duration.ts';
export { kubeconfig, kubeconfigForm, nodeName, nodeNameForm, nodeNamePattern } from './kubernetes.ts';
export { mode, modeForm, modePattern } from './mode.ts';
export {
  absolutePath,
  addressForm,
  optionalAddressForm,
  optionalPath,
  optionalPathForm,
  optionalSocketPath,
  pathForm,
  socketPath,
} from './path.ts';
export { optionalPid, optionalPidForm } from './pid.ts';
