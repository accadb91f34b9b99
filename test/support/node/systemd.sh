# Part of init.sh: systemd becomes the first process. Its programs, units and libraries come from the cache and hide
# those of the host. The rest of the root is the host's, as without systemd.
set -e
for folder in systemd dbus-1; do
  case $folder in systemd) place=/usr/lib/systemd ;; *) place=/usr/share/$folder ;; esac
  mkdir -p "$place" "/etc/$folder"
  mount --bind "$NODE_SYSTEMD/$folder" "$place"
  # Hides the settings of the host and the units that it has enabled.
  mount -t tmpfs -o mode=755 tmpfs "/etc/$folder"
done
for program in "$NODE_SYSTEMD"/bin/*; do ln -sf "$program" /usr/bin/; done
cp -r "$NODE_SCRIPTS/systemd/." /etc/systemd/system/
grep -q ^messagebus: /etc/passwd || echo 'messagebus:x:499:499::/nonexistent:/usr/sbin/nologin' >>/etc/passwd
grep -q ^messagebus: /etc/group || echo 'messagebus:x:499:' >>/etc/group
echo 00000000000000000000000000000001 >/etc/machine-id
mkdir /etc/systemd/system/multi-user.target.wants /etc/systemd/system/test-node.service.d
ln -s ../test-node.service /etc/systemd/system/multi-user.target.wants/
# The path of run.sh depends on the checkout.
printf '[Service]\nExecStart="%s" sh "%s"\n' "$NODE_APPLETS/busybox" "$NODE_SCRIPTS/run.sh" \
  >/etc/systemd/system/test-node.service.d/start.conf
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb \
  /usr/lib/systemd/systemd
