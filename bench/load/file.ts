/** The recording that the bench plays, in the repository. */
export const RECORDING = 'bench/data/kubelet-1.36.recording';
