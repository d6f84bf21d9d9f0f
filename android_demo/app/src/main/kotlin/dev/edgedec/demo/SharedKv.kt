package dev.edgedec.demo

import android.annotation.TargetApi
import android.os.Build
import android.os.SharedMemory
import android.system.ErrnoException
import dev.edgedec.core.Block
import dev.edgedec.core.Memory
import java.nio.ByteBuffer
import java.nio.ByteOrder

/**
 * Caches and tensors in shared memory, which nobody shares: Android counts direct buffers as Java heap,
 * of which an app has a few hundred megabytes. Android 8.0 has nothing else.
 */
object SharedKv : Memory {
    override fun allocate(bytes: Int): Block =
        if (Build.VERSION.SDK_INT < Build.VERSION_CODES.O_MR1) Memory.direct.allocate(bytes) else SharedBlock(bytes)
}

@TargetApi(Build.VERSION_CODES.O_MR1)
private class SharedBlock(bytes: Int) : Block {
    private val memory: SharedMemory
    override val buffer: ByteBuffer

    init {
        try {
            memory = SharedMemory.create("edgedec", maxOf(1, bytes))
            val mapped = memory.mapReadWrite()
            mapped.limit(bytes)
            buffer = mapped.order(ByteOrder.nativeOrder())
        } catch (error: ErrnoException) {
            // What the core expects of memory that is not to be had.
            throw OutOfMemoryError(error.message)
        }
    }

    override fun close() {
        SharedMemory.unmap(buffer)
        memory.close()
    }
}
