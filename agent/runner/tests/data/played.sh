# A machine whose boots are played: programs of the names that the agent and a power button run, each `. played.sh NAME`.
# They end every process of the machine and begin its next boot, hook and all. `$M` is the machine's folder; what a boot
# of a test kernel comes to is in `$M/fate`, a word a line.
export PERFBISECT_PLAYED_SYSTEM=$M/system PATH=$M/bin:$PATH
die() { # every process of the machine but this one
    for environ in $(grep -lzxF "PERFBISECT_PLAYED_SYSTEM=$M/system" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${environ#/proc/}; pid=${pid%/environ}
        [ "$pid" = $$ ] || kill -9 "$pid" 2>/dev/null
    done
}
begin() { # COMMAND-LINE RELEASE
    local new=$M/system-$(cat /proc/sys/kernel/random/uuid)
    cp -r "$(realpath "$M/system")" "$new"
    echo "${new#*system-}" > "$new/proc/sys/kernel/random/boot_id"
    echo "$1" > "$new/proc/cmdline"
    echo "$2" > "$new/proc/sys/kernel/osrelease"
    ln -s "$new" "$M/next"
    die
    mv -T "$M/next" "$M/system" # all of it at once: nobody sees half a boot
    echo "$2" >> "$M/boots"
}
hook() { setsid "$M/root/resume" --root "$M/root" resume >>"$M/hook.log" 2>&1 </dev/null & }
home() { begin "root=/dev/vda ro" "$(cat "$M/home")"; hook; }
next_fate() { # the first of several is used up, the last one stays
    head -n 1 "$M/fate"
    [ "$(wc -l < "$M/fate")" -le 1 ] || sed -i 1d "$M/fate"
}
test_kernel() { # COMMAND-LINE RELEASE
    local fate
    case $1 in
        *perfbisect_trial=panic*) fate=silent ;;
        *perfbisect_trial=hang*) fate=hang ;;
        *) fate=$(next_fate) ;;
    esac
    echo "$fate" >> "$M/fates"
    case $fate in
        good) begin "$1" "$2"; hook ;;
        wrong) begin "$1" 6.1.0-other; hook ;;
        panic) begin "$1" "$2"
            printf 'Linux version 6.1\nKernel panic - not syncing: played\n' > "$M/system/sys/fs/pstore/dmesg-1"
            home ;;
        silent) begin "$1" "$2"; home ;;
        hang) begin "$1" "$2" ;;
    esac
}

case $1 in
kexec)
    shift
case $1 in
    -l) [ ! -e "$M/refuse" ] || { echo 'kexec_load failed: Operation not permitted' >&2; exit 1; }
        echo 6.1.0-test > "$M/release"
        for word; do case $word in
            --command-line=*) echo "${word#*=}" > "$M/loaded" ;;
            */boot/vmlinuz-*) echo "${word##*/vmlinuz-}" > "$M/release" ;;
        esac; done ;;
    -e) test_kernel "$(cat "$M/loaded")" "$(cat "$M/release")" ;;
esac
    ;;
reboot)
if [ -s "$M/next_entry" ] && [ ! -e "$M/ignore" ]; then
    : > "$M/next_entry"
    test_kernel "$(sed -n 's/^linux [^ ]* //p' "$M/boot/entry.cfg")" 6.1.0-test
else
    home
fi
    ;;
power-cycle | crash)
    [ -e "$M/dead" ] || home
    ;;
off)
    die
    ;;
grub-reboot)
    echo "$2" > "$M/next_entry"
    ;;
grub-editenv)
    case $* in
        *list) echo "next_entry=$(cat "$M/next_entry")" ;;
        *unset*) : > "$M/next_entry" ;;
    esac
    ;;
esac
exit 0
