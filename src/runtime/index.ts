/** The client side: containerd's socket, its messages, and what it tells about itself. */
export * from './backend.ts';
export * from './cgroup-driver.ts';
export * from './container-status.ts';
export * from './description.ts';
export * from './messages.ts';
export * from './verbose-info.ts';
