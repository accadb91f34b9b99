/** The client of containerd: its socket, the CRI messages, and the verbose status. */
export * from './backend.ts';
export * from './cgroup-driver.ts';
export * from './container-status.ts';
export * from './description.ts';
export * from './messages.ts';
export * from './verbose-info.ts';
