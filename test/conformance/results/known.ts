/**
 * Specs that cannot pass in the test node on either side, and what they would need. They still run, because both sides
 * must have the same result.
 */
export const cannotPass: ReadonlyMap<string, string> = new Map([
  [
    '[k8s.io] Image Manager public image with digest should be pulled and removed [Conformance]',
    'references an image by digest, and nobody can build content for a given digest',
  ],
  [
    '[k8s.io] Security Context bucket runtime should support MaskedPaths',
    'masks /bin/ls, which is a link to busybox in an image made of busybox: nothing can start there',
  ],
  [
    '[k8s.io] Networking runtime should support networking runtime should support port mapping with host port and container port [Conformance]',
    'needs the portmap plugin, which needs iptables',
  ],
]);

/**
 * If fewer specs than this pass directly, a full run says too little about the shim, because the node or the images
 * have a fault. 103 pass with containerd 2.1 and runc 1.3.
 */
export const leastPassedDirect = 85;
