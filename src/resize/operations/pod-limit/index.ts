/** Raises the pod limit for containers that start or restart with larger limits, or in another sandbox. */
export { type AdmitRestartParts, raisePodForRestart, raisePodLimit } from './raise-pod-limit.ts';
