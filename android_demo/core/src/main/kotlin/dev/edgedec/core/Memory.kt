package dev.edgedec.core

import ai.onnxruntime.OnnxJavaType
import ai.onnxruntime.OnnxTensor
import ai.onnxruntime.OrtEnvironment
import java.nio.ByteBuffer
import java.nio.ByteOrder

/**
 * Where caches and tensors lie: direct buffers on a desktop. On a phone those count as Java heap,
 * so an app passes shared memory instead.
 */
fun interface Memory {
    /** Returns [bytes] zeros. */
    fun allocate(bytes: Int): Block

    companion object {
        /** Direct buffers; the JVM frees one some time after its block was closed. */
        val direct: Memory = Memory { bytes -> DirectBlock(bytes) }
    }
}

/** Memory that is freed when it is closed; nothing may use [buffer] afterwards. */
interface Block : AutoCloseable {
    /** All of the memory, in native byte order: ONNX Runtime reads the bytes as they are. */
    val buffer: ByteBuffer
}

private class DirectBlock(bytes: Int) : Block {
    private var held: ByteBuffer? = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())

    override val buffer: ByteBuffer
        get() = held ?: throw StateException("this memory is closed: allocate another block")

    override fun close() {
        held = null
    }
}

/** Returns zeros for [purpose], which names them in the error if there is not that much memory. */
internal fun Memory.reserve(bytes: Long, purpose: String): Block {
    val refused = "$purpose would take ${bytes / 1_000_000} MB, which cannot be allocated: " +
        "use a shorter context"
    if (bytes > Int.MAX_VALUE) throw InputException(refused)
    try {
        return allocate(bytes.toInt())
    } catch (error: OutOfMemoryError) {
        throw EdgedecException(refused, error)
    }
}

/** Returns a view of some bytes; a view has Java's byte order unless it is set again. */
internal fun ByteBuffer.part(from: Int, bytes: Int): ByteBuffer {
    val whole = duplicate()
    whole.position(from)
    whole.limit(from + bytes)
    return whole.slice().order(ByteOrder.nativeOrder())
}

/** Wraps the bytes from [from] on as a tensor; nothing is copied. */
internal fun Block.tensor(from: Int, type: OnnxJavaType, vararg shape: Int): OnnxTensor {
    val view = buffer.part(from, shape.fold(type.size, Int::times))
    return OnnxTensor.createTensor(OrtEnvironment.getEnvironment(), view, LongArray(shape.size) { shape[it].toLong() }, type)
}
