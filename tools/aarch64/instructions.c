/* Counts the instructions of an emulated program, for qemu's user mode: prints the count so far on
 * each getppid(). Instructions of all threads are added without a lock: measure one thread. */
#include <inttypes.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))
#define GETPPID 173 /* of Linux on aarch64 */

/* Of qemu's plugin interface, version 1 (qemu 4.2 and later). */
struct qemu_plugin_tb;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
enum { ADD_U64 };
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
typedef void (*translated)(uint64_t id, struct qemu_plugin_tb *);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated);
typedef void (*called)(uint64_t id, unsigned, int64_t number, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t, uint64_t, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, called);

EXPORT int qemu_plugin_version = 1;
static uint64_t count;

static void on_translated(uint64_t id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &count, qemu_plugin_tb_n_insns(block));
}

static void on_call(uint64_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                    uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number == GETPPID) fprintf(stderr, "instructions %" PRIu64 "\n", count);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
    qemu_plugin_register_vcpu_syscall_cb(id, on_call);
    return 0;
}
